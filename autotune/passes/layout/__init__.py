"""Where elements lie: layouts, views, stored weights."""
