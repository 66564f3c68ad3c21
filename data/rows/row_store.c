/* Records of rows, in memory or in a file. */
#include "data/rows/row_store.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"

struct row_store *row_store_new(void)
{
	struct row_store *s = mem_alloc(1, sizeof(*s));

	if (s) {
		s->refs = 1;
		s->fd = -1;
	}
	return s;
}

struct row_store *row_store_share(struct row_store *s)
{
	s->refs++;
	return s;
}

void row_store_release(struct row_store *s)
{
	if (!s || --s->refs)
		return;
	mem_free(s->memory);
	mem_free(s->index);
	if (s->fd >= 0)
		close(s->fd);
	mem_free(s->path);
	mem_free(s);
}

void row_buffer_free(struct row_buffer *b)
{
	mem_free(b->block);
	*b = (struct row_buffer){0};
}

/* Of the trained flags. */
static int64_t flags_bytes(int64_t token_count)
{
	return ((token_count + 7) / 8 + 3) / 4 * 4;
}

int64_t row_record_bytes(int64_t token_count, enum row_labels labels, int64_t vector_count)
{
	return 4 + 4 * token_count * (labels == ROW_LABELS_OWN ? 2 : 1) + flags_bytes(token_count) +
	       4 * vector_count;
}

float *row_record_write(void *record, const int32_t *ids, const int32_t *labels, int64_t token_count,
        int64_t masked, enum row_labels own)
{
	uint32_t *head = record;
	int32_t *at = (int32_t *)record + 1;
	uint8_t *trained;

	*head = own == ROW_LABELS_OWN;
	memcpy(at, ids, (size_t)token_count * sizeof(*ids));
	at += token_count;
	if (own == ROW_LABELS_OWN) {
		memcpy(at, labels, (size_t)token_count * sizeof(*labels));
		at += token_count;
	}
	trained = (uint8_t *)at;
	memset(trained, 0, (size_t)flags_bytes(token_count));
	for (int64_t t = 0; t < token_count; t++)
		if (labels ? labels[t] != DATASET_IGNORE : t >= masked)
			trained[t / 8] |= (uint8_t)(1 << t % 8);
	return (float *)(void *)(trained + flags_bytes(token_count));
}

static uint32_t checksum(const void *record, int64_t len_bytes)
{
	return (uint32_t)XXH3_64bits((const char *)record + 4, (size_t)len_bytes - 4) << 1;
}

void row_record_seal(void *record, int64_t len_bytes)
{
	uint32_t *head = record;

	*head = (*head & 1) | checksum(record, len_bytes);
}

static int damaged(const struct row_store *s)
{
	return err_set(ERR_IO, "%s is damaged", s->path);
}

/* Takes the names of a file with a damaged record, index first, unless another process has made it again. */
static void discard(const struct row_store *s)
{
	size_t len = strlen(s->path);
	char *index =
	        str_ends_with(s->path, ".rows") ? mem_printf("%.*s.index", (int)len - 5, s->path) : NULL;
	struct stat open_file, named;

	if (index && !fstat(s->fd, &open_file) && !stat(s->path, &named) &&
	        open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev) {
		unlink(index);
		unlink(s->path);
	}
	mem_free(index);
}

int row_store_replace(const struct row_store *s, const struct row_store *from)
{
	if (from->fd >= 0 && from->len_bytes == s->len_bytes && dup3(from->fd, s->fd, O_CLOEXEC) == s->fd)
		return 0;
	return err_set(ERR_IO, "%s: its rows cannot be made again", s->path);
}

/* Reads the maximum size of the record: only its first word says whether it has its own labels. */
static int read_record(
        struct row_buffer *b, const struct row_store *s, const struct row_entry *e, int64_t vector_count)
{
	int64_t most = row_record_bytes(e->token_count, ROW_LABELS_OWN, vector_count), len;
	int rc;

	if (e->start_bytes < 0 || e->token_count < 1 ||
	        e->start_bytes >
	                s->len_bytes - row_record_bytes(e->token_count, ROW_LABELS_SHARED, vector_count))
		return damaged(s);
	if (most > s->len_bytes - e->start_bytes)
		most = s->len_bytes - e->start_bytes;
	if (b->cap_bytes < (size_t)most) {
		void *grown = mem_resize(b->block, (size_t)most, 1);

		if (!grown)
			return ERR_NOMEM;
		b->block = grown;
		b->cap_bytes = (size_t)most;
	}
	rc = file_read_at(s->fd, s->path, b->block, (size_t)most, e->start_bytes);
	if (rc)
		return rc;
	len = row_record_bytes(
	        e->token_count, *(uint32_t *)b->block & 1 ? ROW_LABELS_OWN : ROW_LABELS_SHARED, vector_count);
	if (len > most || (*(uint32_t *)b->block & ~1u) != checksum(b->block, len))
		return damaged(s);
	return 0;
}

int row_store_read(struct row_view *view, struct row_buffer *buffer, const struct row_store *s,
        const struct row_entry *entry, int64_t vector_count)
{
	const uint8_t *record = s->memory ? s->memory + entry->start_bytes : NULL;
	const int32_t *words;
	int own;

	if (!record) {
		int rc = read_record(buffer, s, entry, vector_count);

		if (rc && rc != ERR_NOMEM) {
			discard(s);
			rc = s->mend ? s->mend(s->mend_context, s)
			             : err_reword(
			                       rc, "%s; ferry makes it again at its next start", err_text());
			if (!rc && (rc = read_record(buffer, s, entry, vector_count)) && rc != ERR_NOMEM)
				rc = err_reword(
				        rc, "%s again; set data_cache to another directory", err_text());
		}
		if (rc)
			return rc;
		record = buffer->block;
	}
	own = *(const uint32_t *)(const void *)record & 1;
	words = (const int32_t *)(const void *)record + 1;
	*view = (struct row_view){.token_count = entry->token_count,
	        .ids = words,
	        .labels = own ? words + entry->token_count : NULL,
	        .trained = (const uint8_t *)(words + entry->token_count * (own ? 2 : 1))};
	view->vector = (const float *)(const void *)(view->trained + flags_bytes(entry->token_count));
	return 0;
}
