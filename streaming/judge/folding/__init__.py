"""One incident, one page: fold the signals that another one explains into that one.

`failing` folds what a failing queue explains, and holds back what it may be about to; `causes` folds signals about messages,
groups and consumers into the one that names their cause.
"""
