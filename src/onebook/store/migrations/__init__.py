"""Steps from one schema to the next, applied by `store.migrate`."""
