"""Files of draft nets that others have trained: what lies in a folder, and how a format of such is described."""
