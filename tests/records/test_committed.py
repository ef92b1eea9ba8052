"""Committed trials in columns say what their records say."""

from hypothesis import given
from hypothesis import strategies as st

from batchscale.records.metadata.trial import TrialMetadata
from batchscale.records.model import Status, TrialRecord
from batchscale.records.tree.committed import CommittedTrials

numbers = st.floats(allow_nan=False, allow_infinity=False)
records = st.builds(
    TrialRecord,
    trial_id=st.integers(1, 12),
    status=st.sampled_from(Status),
    steps=st.integers(0, 2**53),
    parameters=st.dictionaries(st.sampled_from(("learning_rate", "momentum", "width")), numbers),
    metadata=st.one_of(
        st.none(),
        st.builds(
            TrialMetadata, reached_at=st.one_of(st.none(), st.integers(0, 2**53)), best=st.one_of(st.none(), numbers)
        ),
    ),
)


@given(st.lists(records, max_size=30))
def test_columns_hold_the_last_record_of_each_trial(found):
    there: dict[int, TrialRecord] = {}
    committed = CommittedTrials(lambda trial_id: there[trial_id])
    for record in found:
        there[record.trial_id] = record
        committed.put(record)
    assert list(committed) == sorted(there)
    assert dict(committed) == there
    assert 13 not in committed
    assert {status: committed.counts[status] for status in Status} == {
        status: sum(record.status is status for record in there.values()) for status in Status
    }
    for summary, (trial_id, record) in zip(committed.trials(), sorted(there.items()), strict=True):
        facts = record.metadata or TrialMetadata()
        assert summary == committed.trial(trial_id)
        assert (summary.trial_id, summary.status, summary.steps) == (trial_id, record.status, record.steps)
        assert summary.parameters == record.parameters
        assert (summary.reached_at, summary.best) == (facts.reached_at, facts.best)
