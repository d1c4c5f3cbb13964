"""Files of the history (`history.dir`): everything that the books applied, as Parquet.

`recorder` collects what books apply, `format` has the schema, `folder` writes and finds files,
`proof` chains and verifies closed hours, `stores` and `uploads` keep them in object stores, and
`reader` rebuilds books of a past moment, of which `onebook.history` makes one answer, and `kept`
has the rows of the last ones. `player`
plays them from a moment on, for `onebook.replay`. Needs the extra `onebook[history]`.
"""
