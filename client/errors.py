"""Errors that the client raises, by cause.

    OutriderError
    ├── InvalidRequest          the request is wrong: change it (INVALID_ARGUMENT, OUT_OF_RANGE, FAILED_PRECONDITION)
    ├── NotFound                no such model, drafter or request (NOT_FOUND)
    ├── AlreadyRunning          this request_id is running (ALREADY_EXISTS)
    ├── Overloaded              the queue is full: try again after `retry_after_s` (RESOURCE_EXHAUSTED)
    ├── Unavailable             nobody answers, or the stream broke: try again (UNAVAILABLE)
    ├── DeadlineExceeded        the timeout passed (DEADLINE_EXCEEDED)
    ├── Cancelled               the request was cancelled (CANCELLED, ABORTED)
    ├── Unauthorized            credentials are missing or refused (UNAUTHENTICATED, PERMISSION_DENIED)
    └── ServiceError            the service failed (anything else)
"""
