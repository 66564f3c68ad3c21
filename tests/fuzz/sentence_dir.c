/* links: base model model_families checkpoint */
/* seeds: */
/* seconds: 8 */
/* The files of a directory of sentence-transformers, a line each: what is taken is a chain of modules whose
 * widths fit. */
#include "tests/fuzz/fuzz.h"

#include "base/file.h"
#include "checkpoint/hf/sentence_dir.h"

static const char *const folders[] = {"1_Pooling", "2_Dense", "3_Dense"};
static const char *const files[] = {"modules.json", "1_Pooling/config.json", "2_Dense/config.json",
        "3_Dense/config.json", "config_sentence_transformers.json", "sentence_bert_config.json"};
enum { FILES = sizeof(files) / sizeof(*files), WIDTH = 8 };

static void dir_remove(void)
{
	(void)file_remove_tree(fuzz_dir());
}

static void dir_make(void)
{
	static int made;
	char path[100];

	if (made)
		return;
	made = 1;
	atexit(dir_remove);
	for (size_t i = 0; i < sizeof(folders) / sizeof(*folders); i++) {
		snprintf(path, sizeof(path), "%s/%s", fuzz_dir(), folders[i]);
		fuzz_require(!mkdir(path, 0777));
	}
}

/* An empty line: the file is absent. */
static void dir_fill(const char *data, size_t len)
{
	for (int i = 0; i < FILES; i++) {
		const char *end = len ? memchr(data, '\n', len) : NULL;
		size_t line = end ? (size_t)(end - data) : len, used = line + (end != NULL);
		char path[100];

		snprintf(path, sizeof(path), "%s/%s", fuzz_dir(), files[i]);
		(void)unlink(path);
		if (line) {
			FILE *f = fopen(path, "wb");

			fuzz_require(f && fwrite(data, 1, line, f) == line && !fclose(f));
		}
		data += used;
		len -= used;
	}
}

static void pooling_require(const struct pooling *p, int64_t width)
{
	int64_t in = WIDTH * p->mode_count;
	int denses = 0;

	fuzz_require(p->mode_count > 0 && p->mode_count <= POOL_MODES_MAX);
	for (int m = 0; m < p->mode_count; m++)
		for (int other = 0; other < m; other++)
			fuzz_require(p->mode[m] != p->mode[other]);
	fuzz_require(p->layer_count <= POOL_LAYERS_MAX);
	for (int i = 0; i < p->layer_count; i++) {
		const struct pool_layer *layer = &p->layer[i];

		fuzz_require(layer->in == in && layer->out > 0 && layer->out <= INT32_MAX);
		fuzz_require((layer->kind == POOL_LAYER_DENSE) == (*layer->folder != 0));
		denses += layer->kind == POOL_LAYER_DENSE;
		in = layer->out;
	}
	fuzz_require(denses <= POOL_DENSE_MAX && in == width && width == pooling_width(p, WIDTH));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct sentence_dir s;
	int err;

	dir_make();
	dir_fill((const char *)data, len);
	err = sentence_dir_read(&s, fuzz_dir(), WIDTH);
	if (err) {
		fuzz_refused(err);
		fuzz_require(!s.prompts && !s.pooling.mode_count);
		return 0;
	}
	if (s.is_there)
		pooling_require(&s.pooling, s.width);
	else
		fuzz_require(!s.pooling.mode_count && s.width == WIDTH);
	(void)sentence_dir_prompt(&s, "query");
	sentence_dir_free(&s);
	return 0;
}
