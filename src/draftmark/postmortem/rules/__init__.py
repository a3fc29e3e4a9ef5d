"""What makes a cause a cause, one module a family. A rule looks at a scene and yields claims; `judge` weighs them."""
