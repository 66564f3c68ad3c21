/* GPUs, drivers and libraries, for ferry topo. */
#include "cli/topo_gpus.h"

#include "cli/cli.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/quantity.h"
#include "train/devices.h"

#include <stdio.h>

static void print_version(const struct config *c, const char *label, int version)
{
	cli_say(c, "%-22s CUDA %d.%d\n", label, version / 1000, version % 1000 / 10);
}

static void print_gpu(const struct config *c, const struct cuda_gpu *gpu, int index)
{
	struct str memory = {0};
	char label[32], node[32] = "";

	snprintf(label, sizeof(label), "GPU %d", index);
	if (gpu->numa_node >= 0)
		snprintf(node, sizeof(node), ", NUMA node %d", gpu->numa_node);
	quantity_bytes(&memory, gpu->memory_bytes);
	cli_say(c, "%-22s %s, %s, compute capability %d.%d, %d multiprocessors, %d copy engines, at %s%s\n",
	        label, gpu->name, memory.data ? memory.data : "", gpu->capability / 10, gpu->capability % 10,
	        gpu->sm_count, gpu->copy_engine_count, gpu->pci_bus_id, node);
	str_free(&memory);
}

int topo_gpus_print(const struct config *c)
{
	struct cuda_info *info = mem_alloc(1, sizeof(*info));

	if (!info)
		return ERR_NOMEM;
	devices_cuda_info(info);
	for (int i = 0; i < info->gpu_count; i++)
		print_gpu(c, &info->gpu[i], i);
	if (!info->gpu_count)
		cli_say(c, "%-22s none: %s\n", "GPUs", info->trouble);
	if (info->runtime_version)
		print_version(c, "built with", info->runtime_version);
	if (info->driver_version)
		print_version(c, "driver serves", info->driver_version);
	for (int kind = 0; kind < CUDA_LIBRARY_COUNT; kind++) {
		char *text = devices_cuda_library((enum cuda_library_kind)kind);

		if (text)
			cli_say(c, "%-22s %s\n", "library", text);
		mem_free(text);
	}
	if (info->trouble[0])
		cli_say(c, "%-22s host: %s\n", "device",
		        info->gpu_count ? info->trouble : "there is no GPU to use");
	else
		cli_say(c, "%-22s cuda: GPU 0\n", "device");
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
	return object;
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
		json_object_set(object, "cuda", cuda);
		json_object_set_new(object, "device", json_string(info->trouble[0] ? "host" : "cuda"));
	}
	json_decref(gpus);
	json_decref(libraries);
	json_decref(cuda);
	mem_free(info);
	return rc;
}
