"""Commands of `outrider` as jobs on a Ray cluster that runs already, by Ray's Jobs API."""
