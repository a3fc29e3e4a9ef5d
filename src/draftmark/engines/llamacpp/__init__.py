"""llama-server of llama.cpp, builds around b11434, and what speaks its HTTP."""
