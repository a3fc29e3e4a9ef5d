"""Why a server died: intake → parse → events → judge → verdict. All pure but `intake` and `collect`."""
