"""Memory of elements: layouts, views, stored weights."""
