"""x"""
Row = tuple[str, str, str]
def render(*a, **k): return "x"
