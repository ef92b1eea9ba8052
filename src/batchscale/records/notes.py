"""What lowers the trust in a study, in words: the same ones in every table, on every page and while a run goes on."""

EDGE_WORDS = "at an edge of its search space"
"""Where a best trial lies, in sentences and titles."""

_AT_EDGE = "at edge"


def study_note(edge: str | None, searches: int, *, short: bool = False, ended: bool = True) -> str | None:
    """What is said of a study beside its numbers; None if there is nothing to say.

    Args:
        edge: The ends that its best trial lies at.
        searches: How often it was searched.
        short: Whether fewer trials than asked for did not diverge.
        ended: Whether its run has ended.

    >>> study_note("learning_rate high", 2)
    'at edge: learning_rate high; 2 searches'
    """
    notes = [f"{_AT_EDGE}: {edge}"] if edge else []
    notes += [f"{searches} searches"] if searches > 1 else []
    notes += ["too few non-divergent trials"] if short else []
    notes += [] if ended else ["not finished"]
    return "; ".join(notes) or None


def curve_note(at_edge: str, searched_again: str) -> str | None:
    """The same of a whole curve, by the batch sizes it is said of (in words; empty: of none).

    >>> curve_note("4 and 8", "4")
    'at edge at batch size 4 and 8; searched again at batch size 4'
    """
    told = ((_AT_EDGE, at_edge), ("searched again", searched_again))
    return "; ".join(f"{words} at batch size {sizes}" for words, sizes in told if sizes) or None
