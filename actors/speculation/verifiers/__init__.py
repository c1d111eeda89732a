"""The verifiers of the literature, one file a method, all of one signature (`acceptance.Verify`).

Each takes a frozen tree, the target's rows, the drafts' rows and decisions, and gives the accepted path and the token
after it. All are exact: the committed tokens are distributed as the target alone, provided that the tree was grown as
its description says the method needs.
"""
