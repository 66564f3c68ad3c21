/* links: config */
/* seeds: tests/fuzz/yaml */
/* seconds: 8 */
/* A file of settings: what ferry writes of it reads back as the same configuration. */
#include "tests/fuzz/fuzz.h"

#include "base/log.h"
#include "base/str.h"
#include "config/config.h"

static void ignore(void *context, enum log_level level, const char *line)
{
	(void)context;
	(void)level;
	(void)line;
}

static int read_settings(struct config *c, const char *text, size_t len)
{
	const char *path = fuzz_file("run.yaml", (const uint8_t *)text, len);
	char *argv[] = {(char *)(uintptr_t)path, NULL};

	return config_parse(c, VERB_TRAIN, 1, argv);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct config c = {0}, again = {0};
	struct str text = {0}, other = {0};
	int err;

	log_set_sink(ignore, NULL);
	err = read_settings(&c, (const char *)data, len);
	if (err) {
		fuzz_refused(err);
		config_free(&c);
		return 0;
	}
	config_write_yaml(&text, &c);
	fuzz_require(!str_check(&text));
	err = read_settings(&again, text.data, text.len_bytes);
	if (err) {
		fprintf(stderr, "%s\n%s\n", err_text(), text.data);
		abort();
	}
	config_write_yaml(&other, &again);
	if (str_check(&other) || strcmp(text.data, other.data)) {
		fprintf(stderr, "%s\n---- read back ----\n%s\n", text.data, other.data);
		abort();
	}
	str_free(&text);
	str_free(&other);
	config_free(&c);
	config_free(&again);
	return 0;
}
