/* What is made of exchanges alone. */
#include "comm/link.h"

#include "base/err.h"
#include "base/mem.h"

int link_broadcast(struct link *link, void *values, int64_t bytes, int root)
{
	int size = link_size(link), count = 0, rc;
	struct link_part *parts = mem_alloc((size_t)size, sizeof(*parts));

	if (!parts)
		return ERR_NOMEM;
	if (link_rank(link) != root)
		parts[count++] = (struct link_part){LINK_RECEIVE, root, values, bytes};
	else
		for (int r = 0; r < size; r++)
			if (r != root)
				parts[count++] = (struct link_part){LINK_SEND, r, values, bytes};
	rc = link_exchange(link, parts, count);
	mem_free(parts);
	return rc;
}

/* To rank 0, which adds, and back. */
int link_sum(struct link *link, double *values, int count)
{
	int size = link_size(link), part_count = 0, rc = 0;
	int64_t bytes = (int64_t)count * (int64_t)sizeof(*values);
	struct link_part *parts;
	double *all;

	if (size == 1 || !count)
		return 0;
	parts = mem_alloc((size_t)size, sizeof(*parts));
	all = link_rank(link) ? NULL : mem_alloc((size_t)size * (size_t)count, sizeof(*all));
	if (!parts || (!all && !link_rank(link)))
		rc = ERR_NOMEM;
	if (!rc && link_rank(link))
		parts[part_count++] = (struct link_part){LINK_SEND, 0, values, bytes};
	for (int r = 1; r < size && !rc && !link_rank(link); r++)
		parts[part_count++] = (struct link_part){LINK_RECEIVE, r, all + (int64_t)r * count, bytes};
	if (!rc)
		rc = link_exchange(link, parts, part_count);
	for (int r = 1; r < size && !rc && !link_rank(link); r++)
		for (int i = 0; i < count; i++)
			values[i] += all[(int64_t)r * count + i];
	mem_free(parts);
	mem_free(all);
	return rc ? rc : link_broadcast(link, values, bytes, 0);
}
