from made_records import GOAL, METRIC, MadeStudy, MadeTrial, make_records

from batchscale.figures.kinds.training import training_frame, training_panels


def drawn_bold(*curves):
    trials = [MadeTrial({"learning_rate": 0.1}, [(i * 10, {METRIC: v}) for i, v in enumerate(c)]) for c in curves]
    records = make_records([MadeStudy(8, trials)])
    frame = training_frame(records, training_panels(records, GOAL))
    return frame.drop_nulls("series")["series"].unique().to_list()


def test_the_bold_trial_is_the_one_with_the_fewest_steps_to_the_goal_not_the_lowest_error():
    assert drawn_bold([0.9, 0.5, 0.01], [0.9, 0.09, 0.08]) == ["fewest steps: trial 2"]


def test_where_no_trial_reached_the_goal_the_lowest_error_is_bold():
    assert drawn_bold([0.9, 0.5, 0.4], [0.9, 0.3, 0.6]) == ["best: trial 2"]
