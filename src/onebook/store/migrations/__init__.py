"""The steps from one schema to the next; `store.migrate` applies them."""
