"""Which slow tests a commit's check takes: they are parted into turns of twelve minutes, and each commit has the next turn.

Nothing is kept between two checks: the number of a commit says its turn, and the committed durations say what a turn holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

TURN_SECONDS = 720.0
"""What a check may spend on slow tests."""
BEFORE_THE_FIRST = 90.0
"""Of that, what passes before the first test begins and after the last ended: collection, Spark's start, the first lake, the report."""
ROOM = TURN_SECONDS - BEFORE_THE_FIRST
"""What is left for tests. One that takes longer can have no turn."""
UNMEASURED = 210.0
"""What a slow test counts for that nobody has measured yet."""
LATE = 6.0
"""A test that takes so many times its duration hangs. The speed of a machine of CI varies by a factor of three."""
SHORTEST_LIMIT = 300.0
"""No test is taken for hanging sooner: a start of Spark may be slow."""


@dataclass(frozen=True)
class Turn:
    """What one check takes. number: from 0, of so many turns. left_over: of this turn, what finds no time. later: what has another turn.

    `later` is in the order of its turns: a check that is sooner done than it was planned goes on with that.
    """

    number: int
    turns: int
    taken: tuple[str, ...]
    left_over: tuple[str, ...]
    later: tuple[str, ...]


def expected_seconds(name: str, measured: Mapping[str, float]) -> float:
    """What a test takes: as measured; else as the longest of the same function with other parameters; else UNMEASURED."""
    siblings = [seconds for other, seconds in measured.items() if other.partition("[")[0] == name.partition("[")[0]]
    return measured.get(name, max(siblings, default=UNMEASURED))


def plan_turns(seconds: Mapping[str, float], room: float = ROOM) -> list[tuple[str, ...]]:
    """Part tests into turns, in the order of their names: those of a file share what it makes ready. A long one has a turn of its own."""
    turns: list[list[str]] = []
    filled = room
    for name in sorted(seconds):
        if filled + seconds[name] > room:
            turns.append([])
            filled = 0.0
        turns[-1].append(name)
        filled += seconds[name]
    return [tuple(turn) for turn in turns]


def choose_turn(seconds: Mapping[str, float], commit: int, left: float = ROOM, room: float = ROOM) -> Turn:
    """What the check of this commit takes. commit: its number. left: the seconds that there are now, if not a whole turn's.

    A turn's tests begin with another one each time it comes round, so that one for which time was short comes first some day.
    """
    planned = plan_turns(seconds, room)
    if not planned:
        return Turn(0, 0, (), (), ())
    # A prime number: where only every second or third commit is checked, all turns come round none the less.
    turns = next_prime(len(planned))
    position = commit % turns
    turn = planned[position % len(planned)]
    first = (commit // turns) % len(turn)
    taken: list[str] = []
    left_over: list[str] = []
    for name in turn[first:] + turn[:first]:
        fits = seconds[name] <= left
        (taken if fits else left_over).append(name)
        left -= seconds[name] if fits else 0.0
    following = [planned[(position + step) % turns % len(planned)] for step in range(1, turns)]
    later = dict.fromkeys(name for one in following for name in one if name not in turn)
    return Turn(position, turns, tuple(taken), tuple(left_over), tuple(later))


def time_limit(expected: float) -> float:
    """After how many seconds a test is taken for hanging."""
    return max(SHORTEST_LIMIT, LATE * expected)


def next_prime(number: int) -> int:
    """The smallest prime that is not less."""
    return next(one for one in count(max(2, number)) if all(one % factor for factor in range(2, one)))
