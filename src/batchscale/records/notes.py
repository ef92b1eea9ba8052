"""What lowers the trust in a study, in words: the same ones in every table, on every page and while a run goes on."""


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
    notes = [f"at edge: {edge}"] if edge else []
    notes += [f"{searches} searches"] if searches > 1 else []
    notes += ["too few non-divergent trials"] if short else []
    notes += [] if ended else ["not finished"]
    return "; ".join(notes) or None
