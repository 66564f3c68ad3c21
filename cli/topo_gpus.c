/* Prints GPUs, drivers and libraries for ferry topo. */
#include "cli/topo_gpus.h"

#include "cli/cli.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "train/devices.h"

#include <stdio.h>
#include <string.h>

static void print_version(const struct config *c, const char *label, int version)
{
	cli_tell(c, "%-22s CUDA %d.%d\n", label, version / 1000, version % 1000 / 10);
}

static void print_gpu(const struct config *c, const struct cuda_gpu *gpu, int index)
{
	struct str memory = {0};
	char label[32], node[200] = "";

	snprintf(label, sizeof(label), "GPU %d", index);
	if (gpu->numa_node >= 0)
		snprintf(node, sizeof(node), ", NUMA node %d", gpu->numa_node);
	if (gpu->processors[0])
		snprintf(node + strlen(node), sizeof(node) - strlen(node), ", near processors %s",
		        gpu->processors);
	quantity_bytes(&memory, gpu->memory_bytes);
	cli_tell(c, "%-22s %s, %s, compute capability %d.%d, %d multiprocessors, %d copy engines, at %s%s\n",
	        label, gpu->name, memory.data ? memory.data : "", gpu->capability / 10, gpu->capability % 10,
	        gpu->sm_count, gpu->copy_engine_count, gpu->pci_bus_id, node);
	str_free(&memory);
}

/* Describes the link between two GPUs. */
static const char *link_text(const struct cuda_link *link)
{
	return !link->can_copy     ? "no direct copies: through host memory"
	       : link->has_atomics ? "direct copies, as over NVLink"
	                           : "direct copies, as over PCIe";
}

static int links_equal(const struct cuda_link *a, const struct cuda_link *b)
{
	return a->can_copy == b->can_copy && a->has_atomics == b->has_atomics && a->rank == b->rank;
}

/* Prints one line for each kind of link, with its pairs. */
static void print_links(const struct config *c, const struct cuda_info *info)
{
	char is_said[CUDA_GPUS_MAX][CUDA_GPUS_MAX] = {{0}};

	for (int i = 0; i < info->gpu_count; i++)
		for (int j = i + 1; j < info->gpu_count; j++) {
			const struct cuda_link *link = &info->link[i][j];

			if (is_said[i][j])
				continue;
			cli_tell(c, "%-22s %s, rank %d:", "GPU links", link_text(link), link->rank);
			for (int a = i; a < info->gpu_count; a++)
				for (int b = a + 1; b < info->gpu_count; b++)
					if (!is_said[a][b] && links_equal(&info->link[a][b], link)) {
						cli_tell(c, " %d-%d", a, b);
						is_said[a][b] = 1;
					}
			cli_tell(c, "\n");
		}
}

int topo_gpus_print(const struct config *c)
{
	struct cuda_info *info = mem_alloc(1, sizeof(*info));

	if (!info)
		return ERR_NOMEM;
	devices_cuda_info(info);
	for (int i = 0; i < info->gpu_count; i++)
		print_gpu(c, &info->gpu[i], i);
	print_links(c, info);
	if (!info->gpu_count)
		cli_tell(c, "%-22s none: %s\n", "GPUs", info->trouble);
	if (info->runtime_version)
		print_version(c, "built with", info->runtime_version);
	if (info->driver_version)
		print_version(c, "driver serves", info->driver_version);
	for (int kind = 0; kind < CUDA_LIBRARY_COUNT; kind++) {
		char *text = devices_cuda_library((enum cuda_library_kind)kind);

		if (text)
			cli_tell(c, "%-22s %s\n", "library", text);
		mem_free(text);
	}
	if (info->trouble[0])
		cli_tell(c, "%-22s host: %s\n", "device", info->gpu_count ? info->trouble : "no usable GPU");
	else if (info->gpu_count == 1)
		cli_tell(c, "%-22s cuda: GPU 0\n", "device");
	else
		cli_tell(c, "%-22s cuda: GPU 0; with ranks=%d each of them\n", "device", info->gpu_count);
	mem_free(info);
	return 0;
}

static json_t *gpu_json(const struct cuda_gpu *gpu)
{
	json_t *object = json_pack("{s:s, s:I, s:f, s:i, s:i, s:s}", "name", gpu->name, "memory_bytes",
	        (json_int_t)gpu->memory_bytes, "compute_capability", gpu->capability / 10.0,
	        "multiprocessors", gpu->sm_count, "copy_engines", gpu->copy_engine_count, "pci_bus_id",
	        gpu->pci_bus_id);

	json_object_set_new(
	        object, "numa_node", gpu->numa_node < 0 ? json_null() : json_integer(gpu->numa_node));
	json_object_set_new(
	        object, "processors", gpu->processors[0] ? json_string(gpu->processors) : json_null());
	return object;
}

static json_t *links_json(const struct cuda_info *info)
{
	json_t *links = json_array();

	for (int i = 0; i < info->gpu_count; i++)
		for (int j = 0; j < info->gpu_count; j++)
			if (i != j)
				json_array_append_new(
				        links, json_pack("{s:i, s:i, s:b, s:b, s:i}", "from", i, "to", j,
				                       "direct_copies", info->link[i][j].can_copy, "atomics",
				                       info->link[i][j].has_atomics, "performance_rank",
				                       info->link[i][j].rank));
	return links;
}

int topo_gpus_json(json_t *object)
{
	struct cuda_info *info = mem_alloc(1, sizeof(*info));
	json_t *gpus = json_array(), *libraries = json_array();
	json_t *cuda = json_object();
	int rc = info && gpus && libraries && cuda ? 0 : ERR_NOMEM;

	if (!rc) {
		devices_cuda_info(info);
		for (int i = 0; i < info->gpu_count; i++)
			json_array_append_new(gpus, gpu_json(&info->gpu[i]));
		for (int kind = 0; kind < CUDA_LIBRARY_COUNT; kind++) {
			char *text = devices_cuda_library((enum cuda_library_kind)kind);

			if (text)
				json_array_append_new(libraries, json_string(text));
			mem_free(text);
		}
		json_object_set_new(cuda, "built_version", json_integer(info->runtime_version));
		json_object_set_new(cuda, "driver_version", json_integer(info->driver_version));
		json_object_set_new(
		        cuda, "trouble", info->trouble[0] ? json_string(info->trouble) : json_null());
		json_object_set(cuda, "libraries", libraries);
		json_object_set(object, "gpus", gpus);
		json_object_set_new(object, "gpu_links", links_json(info));
		json_object_set(object, "cuda", cuda);
		json_object_set_new(object, "device", json_string(info->trouble[0] ? "host" : "cuda"));
	}
	json_decref(gpus);
	json_decref(libraries);
	json_decref(cuda);
	mem_free(info);
	return rc;
}
