"""Judgements by people: on a local page or in workbooks."""
