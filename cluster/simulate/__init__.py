"""The whole service under a virtual clock: the code that ships, with emulated devices and simulated links. No thread, no socket."""
