"""Data that the package makes or reads."""
