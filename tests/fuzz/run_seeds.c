/* Runs a fuzz target on every file of the directories on its command line, and on the first half of each:
 * for builds without libFuzzer. */
#include "tests/fuzz/fuzz.h"

#include "base/file.h"

/* In a block of its exact size: reading on is an error that AddressSanitizer sees. */
static void run_one(const char *text, size_t len)
{
	uint8_t *exact = malloc(len ? len : 1);

	fuzz_require(exact);
	memcpy(exact, text, len);
	LLVMFuzzerTestOneInput(exact, len);
	free(exact);
}

static int run_place(const char *path)
{
	char **names = NULL, *text = NULL;
	size_t count = 0, len = 0;
	int ran = 0;

	if (file_kind_of(path) != FILE_DIR) {
		fuzz_require(!file_read_all(path, 1 << 26, &text, &len));
		printf("%s\n", path);
		fflush(stdout);
		run_one(text, len);
		run_one(text, len / 2);
		mem_free(text);
		return 1;
	}
	fuzz_require(!file_list_dir(path, &names, &count));
	for (size_t i = 0; i < count; i++) {
		char *inner = file_join(path, names[i]);

		fuzz_require(inner);
		ran += run_place(inner);
		mem_free(inner);
	}
	file_list_free(names, count);
	return ran;
}

int main(int argc, char *argv[])
{
	int ran = 0;

	for (int i = 1; i < argc; i++)
		ran += run_place(argv[i]);
	if (!ran)
		fprintf(stderr, "no seeds\n");
	return ran ? 0 : 1;
}
