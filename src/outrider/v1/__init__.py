"""Generated from `protos/outrider/v1` by `make protos`. Do not edit."""
