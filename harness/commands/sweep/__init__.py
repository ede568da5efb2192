"""`harness sweep`: many runs over a grid or a search, resumable, each retrieval computed once.

A definition (definition.py, plan.py) is executed (execution.py, trials.py, work.py) and summed up (ending.py).
"""
