"""Checks of what a client wrote. Pure: a request goes in, the settled options or a refusal come out.

Every rule stands in the comments of `protos/outrider/v1`; a refusal names the field, says what it holds and what to do.
A value that no service could take is INVALID_ARGUMENT; one that this model has no room for is OUT_OF_RANGE.
"""
