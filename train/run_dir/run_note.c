/* Writes run.json: version, time, host, device, command and rows of a run. */
#include "train/run_dir/run_note.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#include <inttypes.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

enum { NOTE_BYTES_MAX = 16 << 20 };

static json_t *now_make(void)
{
	time_t now = time(NULL);
	struct tm utc;
	char text[40] = "";

	if (gmtime_r(&now, &utc))
		strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
	return json_string(text);
}

/* This process. */
static json_t *self_make(const struct run_facts *facts)
{
	struct utsname system = {0};
	char rows[32];

	uname(&system);
	snprintf(rows, sizeof(rows), "%016" PRIx64, facts->data_hash);
	return json_pack("{s:s,s:o,s:o,s:s,s:i,s:o,s:s}", "version", FERRY_VERSION, "started", now_make(),
	        "host", json_of_text(system.nodename), "device", facts->device, "ranks", facts->ranks,
	        "command", json_of_text(facts->command ? facts->command : ""), "data_hash", rows);
}

/* What an earlier process wrote; NULL: nothing that can be read. */
static json_t *past_read(const char *dir)
{
	char *path = file_join(dir, RUN_NOTE_NAME);
	json_t *past = NULL;

	if (path && file_kind_of(path) == FILE_REGULAR && json_read_file(&past, path, NOTE_BYTES_MAX))
		past = NULL;
	mem_free(path);
	if (json_is_object(past) && json_is_string(json_object_get(past, "version")))
		return past;
	json_decref(past);
	return NULL;
}

json_t *run_note_make(const struct run_facts *facts, const char *dir)
{
	json_t *self = self_make(facts), *past = facts->step >= 0 ? past_read(dir) : NULL, *list;

	if (!self || !past) {
		json_decref(past);
		return self;
	}
	list = json_object_get(past, "resumed");
	if (!json_is_array(list)) {
		list = json_array();
		if (json_object_set_new(past, "resumed", list))
			list = NULL;
	}
	if (!list || json_object_set_new(self, "step", json_integer(facts->step)) ||
	        json_array_append_new(list, self)) {
		json_decref(past);
		return NULL;
	}
	return past;
}

int run_note_write(const json_t *note, const char *dir)
{
	char *path = file_join(dir, RUN_NOTE_NAME), *text = NULL;
	int rc = path ? json_write(&text, note, JSON_INDENT(1)) : ERR_NOMEM;

	if (!rc)
		rc = file_write_all(path, text, strlen(text));
	mem_free(text);
	mem_free(path);
	return rc;
}
