"""The learning rate schedules of the paper's appendix C, and one through points."""
