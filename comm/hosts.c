/* Names of hosts, exchanged as numbers. */
#include "comm/hosts.h"

#include "comm/world.h"

#include "base/err.h"
#include "base/mem.h"

#include <string.h>
#include <unistd.h>

/* A name travels as numbers in a sum over ranks; every other rank adds 0. */
enum { NAME_BYTES = 48, NUMBER_BYTES = 6, NAME_NUMBERS = NAME_BYTES / NUMBER_BYTES, HOSTS_SHOWN = 16 };

static void name_pack(double *numbers, const char *name)
{
	for (int i = 0; i < NAME_NUMBERS; i++) {
		uint64_t value = 0;

		for (int k = 0; k < NUMBER_BYTES; k++)
			value = value << 8 | (unsigned char)name[i * NUMBER_BYTES + k];
		numbers[i] = (double)value;
	}
}

static void name_unpack(char *name, const double *numbers)
{
	for (int i = 0; i < NAME_NUMBERS; i++) {
		uint64_t value = (uint64_t)numbers[i];

		for (int k = NUMBER_BYTES - 1; k >= 0; k--, value >>= 8)
			name[i * NUMBER_BYTES + k] = (char)(value & 0xff);
	}
	name[NAME_BYTES] = 0;
}

static void hosts_tell(struct str *text, const double *numbers, int size)
{
	char name[NAME_BYTES + 1];
	int shown = 0, next;

	for (int r = 0; r < size; r = next) {
		const double *own = numbers + (ptrdiff_t)r * NAME_NUMBERS;

		for (next = r + 1; next < size; next++)
			/* names, packed NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-*) */
			if (memcmp(own, numbers + (ptrdiff_t)next * NAME_NUMBERS,
			            NAME_NUMBERS * sizeof(*own)))
				break;
		name_unpack(name, own);
		if (shown < HOSTS_SHOWN)
			str_printf(text, "%s%s: %d", shown ? ", " : "", name, r);
		if (shown < HOSTS_SHOWN && next > r + 1)
			str_printf(text, " to %d", next - 1);
		if (shown++ == HOSTS_SHOWN)
			str_add(text, ", ...");
	}
}

int world_hosts(struct str *text)
{
	const struct world *w = world_self();
	char name[NAME_BYTES + 1] = {0};
	double *numbers;
	int rc;

	if (w->size == w->local_size)
		return 0;
	numbers = mem_alloc((size_t)w->size * NAME_NUMBERS, sizeof(*numbers));
	rc = world_agree(numbers ? 0 : ERR_NOMEM);
	if (!rc) {
		(void)gethostname(name, NAME_BYTES); /* cut if it is longer */
		name_pack(numbers + (ptrdiff_t)w->rank * NAME_NUMBERS, name);
		rc = world_sum(numbers, w->size * NAME_NUMBERS);
	}
	if (!rc)
		hosts_tell(text, numbers, w->size);
	mem_free(numbers);
	return rc ? rc : world_agree(str_check(text));
}
