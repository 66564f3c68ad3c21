/* links: base data_tokenizer */
/* seeds: */
/* seconds: 8 */
/* A tokenizer_config.json beside a small tokenizer.json. */
#include "tests/fuzz/tokenizer.h"

static char json_path[64];

static void clean(void)
{
	unlink(json_path);
}

static void write_json(void)
{
	static const char json[] = "{\"added_tokens\":[{\"id\":1,\"content\":\"<s>\",\"single_word\":false,"
	                           "\"lstrip\":false,\"rstrip\":"
	                           "false,\"normalized\":false,\"special\":true}],\"normalizer\":{\"type\":"
	                           "\"Prepend\",\"prepend\":"
	                           "\"\xe2\x96\x81\"},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<unk>\","
	                           "\"vocab\":{\"<unk>\":0,\"<s>\":"
	                           "1,\"H\":2},\"merges\":[]}}";
	FILE *f;

	snprintf(json_path, sizeof(json_path), "%s/tokenizer.json", fuzz_dir());
	f = fopen(json_path, "wb");
	fuzz_require(f && fwrite(json, 1, sizeof(json) - 1, f) == sizeof(json) - 1 && !fclose(f));
	atexit(clean);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	fuzz_file("tokenizer_config.json", data, len);
	if (!*json_path)
		write_json();
	fuzz_tokenizer_at(fuzz_dir());
	return 0;
}
