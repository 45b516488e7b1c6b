"""The only room that knows transformers: loading, prompting, decoding, scoring."""
