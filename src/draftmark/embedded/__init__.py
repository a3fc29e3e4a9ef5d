"""The engine and model that Draftmark uses when no service is named: fetched once, checked, run like any other."""
