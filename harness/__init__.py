"""The harness, room by room.

A room imports from itself and from rooms before it in this order, never from later ones:

interruption < progress < config < data < evaluation < gates < pipeline < tasks < reports < tracking < commands < cli

`retrievers/` lies below all of them.
"""
