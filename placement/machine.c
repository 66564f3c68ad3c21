/* Reads and writes the file that describes a machine. */
#include "placement/machine.h"

#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/name.h"
#include "base/str.h"
#include "base/yaml.h"
#include "config/table.h"

#include <stdio.h>
#include <string.h>

enum need { NEED_ALWAYS, NEED_GPU, NEED_NO_GPU, NEED_NEVER };

/* clang-format off */
#define BYTES(key_name, field, least, need, default_text)                                                    \
	{                                                                                                    \
		{.name = key_name,                                                                           \
		        .type = TYPE_BYTES,                                                                  \
		        .offset = offsetof(struct machine, field),                                           \
		        .min = least,                                                                        \
		        .max = 1e18},                                                                        \
		        need, default_text                                                                   \
	}
#define REAL(key_name, field, least, most, need, default_text)                                               \
	{                                                                                                    \
		{.name = key_name,                                                                           \
		        .type = TYPE_REAL,                                                                   \
		        .offset = offsetof(struct machine, field),                                           \
		        .min = least,                                                                        \
		        .max = most},                                                                        \
		        need, default_text                                                                   \
	}
/* clang-format on */

static const struct machine_key {
	struct config_key value;
	enum need need;
	const char *default_text;
} keys[] = {
        {{.name = "name", .type = TYPE_TEXT, .offset = offsetof(struct machine, name)}, NEED_ALWAYS, NULL},
        {{.name = "gpus",
                 .type = TYPE_COUNT,
                 .offset = offsetof(struct machine, gpu_count),
                 .min = 0,
                 .max = 1e6},
                NEED_ALWAYS, NULL},
        BYTES("gpu.memory", gpu_memory_bytes, 1, NEED_GPU, NULL),
        REAL("gpu.bf16_tflops", bf16_tflops, 1e-6, 1e6, NEED_GPU, NULL),
        REAL("gpu.fp32_tflops", fp32_tflops, 1e-6, 1e6, NEED_GPU, NULL),
        REAL("gpu.memory_gbps", gpu_memory_gbps, 1e-3, 1e6, NEED_GPU, NULL),
        REAL("gpu.h2d_gbps", h2d_gbps, 1e-3, 1e6, NEED_GPU, NULL),
        REAL("gpu.d2h_gbps", d2h_gbps, 1e-3, 1e6, NEED_GPU, NULL),
        REAL("gpu.link_gbps", link_gbps, 1e-3, 1e6, NEED_NEVER, NULL),
        REAL("gpu.link_latency_us", link_latency_us, 0, 1e6, NEED_NEVER, "0"),
        REAL("gpu.uplink_gbps", uplink_gbps, 1e-3, 1e6, NEED_NEVER, NULL),
        {{.name = "gpu.uplink_gpus",
                 .type = TYPE_COUNT,
                 .offset = offsetof(struct machine, uplink_gpus),
                 .min = 1,
                 .max = 1e6},
                NEED_NEVER, "1"},
        REAL("gpu.copies_gbps", copies_gbps, 1e-3, 1e6, NEED_NEVER, NULL),
        REAL("gpu.launch_us", launch_us, 0, 1e6, NEED_NEVER, "2.5"),
        REAL("gpu.call_us", call_us, 0, 1e6, NEED_NEVER, "12"),
        REAL("gpu.attention_tflops", attention_tflops, 1e-6, 1e6, NEED_NEVER, NULL),
        REAL("gpu.attention_grad_tflops", attention_grad_tflops, 1e-6, 1e6, NEED_NEVER, NULL),
        REAL("gpu.matmul_share", matmul_share, 0.01, 1, NEED_NEVER, "0.7"),
        REAL("gpu.memory_share", memory_share, 0.01, 1, NEED_NEVER, "0.85"),
        BYTES("host.memory", host_memory_bytes, 1, NEED_ALWAYS, NULL),
        BYTES("host.reserve", host_reserve_bytes, 0, NEED_NEVER, "4GiB"),
        REAL("host.memory_gbps", host_memory_gbps, 1e-3, 1e6, NEED_ALWAYS, NULL),
        REAL("host.gflops", host_gflops, 1e-3, 1e9, NEED_NO_GPU, NULL),
        REAL("host.update_gbps", host_update_gbps, 1e-3, 1e6, NEED_NEVER, NULL),
        REAL("host.pin_gbps", host_pin_gbps, 0, 1e6, NEED_NEVER, "4"),
        REAL("host.copies_beside_update", copies_beside, 0.01, 1, NEED_NEVER, "1"),
        {{.name = "host.sockets",
                 .type = TYPE_COUNT,
                 .offset = offsetof(struct machine, sockets),
                 .min = 1,
                 .max = 1e3},
                NEED_NEVER, "1"},
        REAL("network.gbps", network_gbps, 1e-3, 1e6, NEED_NEVER, NULL),
        REAL("network.latency_us", network_latency_us, 0, 1e6, NEED_NEVER, "0"),
        REAL("disk.read_gbps", disk_read_gbps, 1e-3, 1e6, NEED_NEVER, NULL),
        REAL("disk.write_gbps", disk_write_gbps, 1e-3, 1e6, NEED_NEVER, NULL),
};

enum { KEY_COUNT = sizeof(keys) / sizeof(*keys) };

static const struct machine_key *key_find(const char *path)
{
	for (int i = 0; i < KEY_COUNT; i++)
		if (!strcmp(keys[i].value.name, path))
			return &keys[i];
	return NULL;
}

static int key_unknown(const char *path, const struct yaml_item *item)
{
	const char *nearest = NULL;
	struct str names = {0};
	int best = 3;

	for (int i = 0; i < KEY_COUNT; i++) {
		int distance = name_distance(item->path, keys[i].value.name);

		if (distance < best) {
			best = distance;
			nearest = keys[i].value.name;
		}
		str_printf(&names, " %s", keys[i].value.name);
	}
	err_set(ERR_INPUT, "%s:%d: unknown key \"%.60s\" of a machine; %s%s%s", path, item->line, item->path,
	        nearest ? "did you mean " : "supported:",
	        nearest      ? nearest
	        : names.data ? names.data
	                     : "",
	        nearest ? "?" : "");
	str_free(&names);
	return ERR_INPUT;
}

static int value_set(struct machine *m, const struct machine_key *key, const char *text)
{
	void *field = (char *)m + key->value.offset;

	switch (key->value.type) {
	case TYPE_TEXT:
		*(char **)field = mem_strdup(text);
		return *(char **)field ? 0 : ERR_NOMEM;
	case TYPE_REAL:
		return config_real_parse(field, &key->value, text);
	default:
		return config_whole_parse(field, &key->value, text);
	}
}

/* "source" is a note, at the root or in a part. */
static int is_remark(const char *path)
{
	const char *dot = strrchr(path, '.');

	return !strcmp(dot ? dot + 1 : path, "source");
}

static int items_take(struct machine *m, uint64_t *seen, const struct yaml_doc *doc, const char *path)
{
	for (size_t i = 0; i < doc->count; i++) {
		const struct yaml_item *item = &doc->items[i];
		const struct machine_key *key = key_find(item->path);
		int rc;

		if (is_remark(item->path))
			continue;
		if (!key)
			return key_unknown(path, item);
		if (item->is_null || item->is_list)
			return err_set(ERR_INPUT, "%s:%d: %s needs one value", path, item->line, item->path);
		*seen |= 1ull << (key - keys);
		rc = value_set(m, key, item->text);
		if (rc == ERR_INPUT) {
			struct err kept = {0};

			err_take(&kept, rc);
			rc = err_set(ERR_INPUT, "%s:%d: %s=%s %s", path, item->line, item->path, item->text,
			        kept.text);
		}
		if (rc)
			return rc;
	}
	return 0;
}

/* Sets defaults of absent keys. ERR_INPUT names all missing keys at once. */
static int items_complete(struct machine *m, uint64_t seen, const char *path)
{
	enum need of_kind = !(seen & 1ull << (key_find("gpus") - keys)) ? NEED_ALWAYS /* unknown */
	                    : m->gpu_count                              ? NEED_GPU
	                                                                : NEED_NO_GPU;
	struct str missing = {0};
	int rc = 0;

	for (int i = 0; i < KEY_COUNT && !rc; i++) {
		enum need need = keys[i].need;

		if (seen & 1ull << i)
			continue;
		if (keys[i].default_text)
			rc = value_set(m, &keys[i], keys[i].default_text);
		else if (need == NEED_ALWAYS || need == of_kind)
			str_printf(&missing, "%s%s", missing.len_bytes ? ", " : "", keys[i].value.name);
	}
	if (!rc)
		rc = str_check(&missing);
	if (!rc && missing.len_bytes)
		rc = err_set(ERR_INPUT, "%s: a machine needs %s", path, missing.data);
	if (!rc && m->gpu_count > 1 && !m->link_gbps)
		m->link_gbps = m->d2h_gbps; /* through the host */
	if (!rc && m->host_reserve_bytes >= m->host_memory_bytes)
		rc = err_set(
		        ERR_INPUT, "%s: host.reserve (default 4GiB) leaves nothing of host.memory", path);
	str_free(&missing);
	return rc;
}

int machine_read(struct machine **out, const char *path)
{
	struct machine *m = mem_alloc(1, sizeof(*m));
	struct yaml_doc doc = {0};
	uint64_t seen = 0;
	int rc = m ? yaml_read_file(&doc, path) : ERR_NOMEM;

	*out = NULL;
	if (!rc)
		rc = items_take(m, &seen, &doc, path);
	if (!rc)
		rc = items_complete(m, seen, path);
	yaml_doc_free(&doc);
	if (rc)
		machine_free(m);
	else
		*out = m;
	return rc;
}

void machine_free(struct machine *m)
{
	if (!m)
		return;
	mem_free(m->name);
	mem_free(m);
}

static void quoted_add(struct str *out, const char *text)
{
	str_add_char(out, '\'');
	for (; *text; text++)
		str_printf(out, "%s%c", *text == '\'' ? "'" : "", *text);
	str_add_char(out, '\'');
}

static void value_text(struct str *out, const struct machine *m, const struct machine_key *key)
{
	const void *field = (const char *)m + key->value.offset;

	if (key->value.type == TYPE_TEXT)
		quoted_add(out, *(char *const *)field);
	else if (key->value.type == TYPE_REAL)
		str_printf(out, "%.17g", *(const double *)field);
	else
		str_printf(out, "%lld", (long long)*(const int64_t *)field);
}

/* Whether the key is unknown (0) or has its default, so that the file need not have it. */
static int is_default(const struct machine *m, const struct machine_key *key)
{
	const void *field = (const char *)m + key->value.offset;
	struct machine preset = {0};

	if (key->value.type == TYPE_TEXT || key->need == NEED_ALWAYS)
		return 0;
	if (key->default_text)
		return !value_set(&preset, key, key->default_text) &&
		       !memcmp((char *)&preset + key->value.offset, field, sizeof(double));
	return key->value.type == TYPE_REAL ? *(const double *)field <= 0 : !*(const int64_t *)field;
}

/* Writes "gpu.memory" below "gpu:". The table lists the keys of a part one after the other. */
int machine_write(const struct machine *m, const char *source, const char *path)
{
	size_t part_len = 0;
	const char *part = "";
	struct str out = {0};
	int rc;

	str_add(&out, "source: ");
	quoted_add(&out, source);
	str_add_char(&out, '\n');
	for (int i = 0; i < KEY_COUNT; i++) {
		const char *name = keys[i].value.name, *dot = strchr(name, '.');
		size_t len = dot ? (size_t)(dot - name) : 0;

		if (is_default(m, &keys[i]))
			continue;
		if (len && (len != part_len || strncmp(name, part, len) != 0))
			str_printf(&out, "%.*s:\n", (int)len, name);
		part = name;
		part_len = len;
		str_printf(&out, "%s%s: ", len ? "  " : "", dot ? dot + 1 : name);
		value_text(&out, m, &keys[i]);
		str_add_char(&out, '\n');
	}
	rc = str_check(&out);
	file_clean_parts_of(path);
	if (!rc)
		rc = file_write_all(path, out.data, out.len_bytes);
	str_free(&out);
	return rc;
}

int64_t machine_ranks_here(const struct machine *m, int64_t world_size)
{
	int64_t most = m->gpu_count ? m->gpu_count : 1;

	return world_size == CONFIG_AUTO || world_size > most ? most : world_size;
}

/* The rate of one GPU's copies while all GPUs of its switch copy. Ranks fill one switch before the next. */
static double copy_rate(const struct machine *m, double gbps, int64_t ranks)
{
	int64_t sharers = ranks < m->uplink_gpus ? ranks : m->uplink_gpus;
	double uplink = m->uplink_gbps / (double)sharers;

	return 1e9 * (uplink > 0 && uplink < gbps ? uplink : gbps);
}

void machine_speed(struct device_speed *speed, const struct machine *m, int64_t ranks)
{
	int64_t here = machine_ranks_here(m, ranks);
	/* one rank is next to one socket, and rarely has the other to itself */
	int64_t parts = m->gpu_count && here < m->sockets ? m->sockets : here;
	double host = 1e9 * m->host_memory_gbps / (double)parts,
	       update = 1e9 * m->host_update_gbps / (double)parts;

	if (!m->gpu_count) { /* a copy reads and writes the same memory */
		*speed = (struct device_speed){.matmul_flops_bf16 = 1e9 * m->host_gflops,
		        .matmul_flops_f32 = 1e9 * m->host_gflops,
		        .memory_bytes = host,
		        .h2d_bytes = host / 2,
		        .d2h_bytes = host / 2,
		        .host_memory_bytes = host,
		        .host_update_bytes = update,
		        .comm_bytes = host / 2,
		        .network_bytes = 1e9 * m->network_gbps,
		        .network_latency_s = 1e-6 * m->network_latency_us,
		        .host_computes = 1};
		return;
	}
	*speed = (struct device_speed){.matmul_flops_bf16 = 1e12 * m->bf16_tflops * m->matmul_share,
	        .matmul_flops_f32 = 1e12 * m->fp32_tflops * m->matmul_share,
	        .attention_flops = 1e12 * m->attention_tflops,
	        .attention_grad_flops = 1e12 * m->attention_grad_tflops,
	        .copies_beside = m->copies_beside < 1 ? m->copies_beside : 0,
	        .memory_bytes = 1e9 * m->gpu_memory_gbps * m->memory_share,
	        .h2d_bytes = copy_rate(m, m->h2d_gbps, here),
	        .d2h_bytes = copy_rate(m, m->d2h_gbps, here),
	        .copies_bytes = 1e9 * m->copies_gbps,
	        .launch_s = 1e-6 * m->launch_us,
	        .call_s = 1e-6 * m->call_us,
	        .host_memory_bytes = host,
	        .host_update_bytes = update,
	        .pin_bytes = 1e9 * m->host_pin_gbps / (double)here,
	        .comm_bytes = 1e9 * m->link_gbps,
	        .network_bytes = 1e9 * m->network_gbps,
	        .comm_latency_s = 1e-6 * m->link_latency_us,
	        .network_latency_s = 1e-6 * m->network_latency_us};
}

void machine_of_speed(struct machine *m, const struct device_speed *s)
{
	m->host_memory_gbps = 1e-9 * s->host_memory_bytes;
	m->host_update_gbps = 1e-9 * s->host_update_bytes;
	m->matmul_share = m->memory_share = 1;
	m->uplink_gpus = m->sockets = 1;
	m->copies_beside = s->copies_beside > 0 ? s->copies_beside : 1;
	if (s->host_computes) {
		m->host_gflops = 1e-9 * s->matmul_flops_bf16;
		return;
	}
	m->bf16_tflops = 1e-12 * s->matmul_flops_bf16;
	m->fp32_tflops = 1e-12 * s->matmul_flops_f32;
	m->attention_tflops = 1e-12 * s->attention_flops;
	m->attention_grad_tflops = 1e-12 * s->attention_grad_flops;
	m->gpu_memory_gbps = 1e-9 * s->memory_bytes;
	m->h2d_gbps = 1e-9 * s->h2d_bytes;
	m->d2h_gbps = 1e-9 * s->d2h_bytes;
	m->copies_gbps = 1e-9 * s->copies_bytes;
	m->launch_us = 1e6 * s->launch_s;
	m->call_us = 1e6 * s->call_s;
	m->host_pin_gbps = 1e-9 * s->pin_bytes;
}
