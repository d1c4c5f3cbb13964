"""One exchange without sockets: frames in, frames out, the market in between."""

import json
from typing import Any

from onebook.simulator import DIALECTS
from onebook.simulator.kit import ExchangeBoard, Frame, Now, SimulatedSession
from onebook.simulator.kit.board import Windows
from onebook.simulator.kit.market import MarketBooks
from onebook.simulator.kit.server import FAULTS, Case

START = Now(1_000.0, 1_700_000_000_000)


def main_pair(name: str) -> str:
    """The first pair of a simulated exchange: BTC in its usual quote currency."""
    return DIALECTS[name].listings[0].symbol


class Desk:
    """A dialect, its board and one client."""

    def __init__(self, name: str, path: str = "/", *, seed: int = 3) -> None:
        self.name = name
        self.market = MarketBooks({name: DIALECTS[name].offer()}, seed=seed)
        kind = DIALECTS[name]
        self.board = ExchangeBoard(kind.listings, self.market.books(name), rules=kind.rules)
        self.dialect = kind(self.board)
        self.now = START
        self.session = SimulatedSession(path, now_s=self.now.s)
        self.session.requests = Windows(kind.rules.requests)
        self.board.sessions.append(self.session)
        self.tops: list[Frame] = []  # of the last step
        self.greeting = [_decoded(f) for f in self.dialect.opened(self.session, self.now)]

    def say(self, message: Any) -> list[Any]:
        """Send one frame; return the decoded answers."""
        text = message if isinstance(message, str) else json.dumps(message)
        answers = self.dialect.received(self.session, text, self.now)
        return [_decoded(f) for f in answers]

    def get(self, path: str, **query: str) -> Any:
        """A REST answer, decoded."""
        answer = self.dialect.get(path, query, self.now)
        return answer if answer is None else (answer.status, json.loads(answer.body))

    def step(self, fault: str = "") -> list[Frame]:
        """Move the market; return the frames of all followed windows. Best prices go to `tops`."""
        self.market.move()
        followed = self.board.followed()
        self.tops = []
        for _ in range(self.dialect.rules.states):
            for _ in self.market.step(self.name, {c.listing.symbol for c in followed}):
                pass
            tops = self.board.collect(self.dialect, self.now)
            self.tops += [frame for key, frame in tops if key in self.session.topics.values()]
        frames: list[Frame] = []
        for channel in followed:
            while (changes := channel.advance()) is not None:
                case = Case(self.dialect, channel, changes, self.board.listings, self.now)
                frames += FAULTS[fault](case) if fault else [case.frame()]
                if fault:
                    break
        return frames


def _decoded(frame: str) -> Any:
    """Decode a frame of JSON; any other text is unchanged."""
    return json.loads(frame) if frame[0] in "{[" else frame
