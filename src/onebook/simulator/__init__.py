"""Simulated exchanges that speak the real protocols on loopback, and replay of recordings."""
