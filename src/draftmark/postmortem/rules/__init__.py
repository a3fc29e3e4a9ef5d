"""What makes a cause a cause, one module a family. Each rule looks at a scene and returns claims; `judge` weighs them."""
