"""The engine and the model that Draftmark uses when no service is named: fetched once, checked, started like any other."""
