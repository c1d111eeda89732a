"""Drafting with a model put together: growing trees and frozen ones, chosen by verifier."""
