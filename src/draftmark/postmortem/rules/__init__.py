"""What makes a cause a cause, one module a family. Rules look at a scene and yield claims; `judge` weighs them."""
