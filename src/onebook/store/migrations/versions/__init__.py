"""One file per step, named after its number; a released step is never changed."""
