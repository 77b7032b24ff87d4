"""The page at `/`: what was captured, judged and learned, and the buttons that change it."""
