from onebook.feeds.listener import PureListener

COMPILED_FOR: str

class Listener(PureListener): ...
