"""One file a step, named after its number; a released step is never changed."""
