"""Models of any size: a graph a bucket of sizes, with masks where what lies beyond a request's size would be read."""
