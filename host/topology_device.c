/* GPUs and other cards, and their nodes. */
#include "host/topology_inner.h"

#include <stdio.h>
#include <string.h>

/* PCI base classes, of the PCI Code and ID Assignment Specification. */
static const char *kind_of(unsigned class_id)
{
	switch (class_id >> 8) {
	case 0x01:
		return class_id == 0x0108 ? "NVMe" : "storage";
	case 0x02:
		return "network";
	case 0x03:
		return "GPU";
	case 0x0c:
		return class_id == 0x0c06 ? "InfiniBand" : NULL;
	case 0x12:
		return "accelerator";
	default:
		return NULL;
	}
}

/* Takes the system's names (eth0, nvme0n1), else the vendor's. */
static void name_device(struct topology_device *d, hwloc_obj_t pci)
{
	const char *vendor = hwloc_obj_get_info_by_name(pci, "PCIVendor");
	const char *device = hwloc_obj_get_info_by_name(pci, "PCIDevice");
	size_t len = 0;

	d->name[0] = 0;
	for (hwloc_obj_t o = pci->io_first_child; o; o = o->next_sibling)
		if (o->type == HWLOC_OBJ_OS_DEVICE && o->name && len < sizeof(d->name))
			len += (size_t)snprintf(
			        d->name + len, sizeof(d->name) - len, "%s%s", len ? " " : "", o->name);
	if (!len && device)
		snprintf(d->name, sizeof(d->name), "%s %s", vendor ? vendor : "", device);
	else if (!len)
		snprintf(d->name, sizeof(d->name), "device %04x:%04x", pci->attr->pcidev.vendor_id,
		        pci->attr->pcidev.device_id);
}

int topology_devices_read(struct topology_device *devices, int max)
{
	hwloc_topology_t h = NULL;
	hwloc_obj_t pci = NULL;
	int count = 0, is_synthetic;

	if (topology_hwloc_load(&h, &is_synthetic, TOPOLOGY_SCOPE_DEVICES))
		return 0;
	while (count < max && (pci = hwloc_get_next_pcidev(h, pci))) {
		const struct hwloc_pcidev_attr_s *at = &pci->attr->pcidev;
		const char *kind = kind_of(at->class_id);
		struct topology_device *d = &devices[count];

		if (!kind)
			continue;
		snprintf(d->kind, sizeof(d->kind), "%s", kind);
		snprintf(d->bus_id, sizeof(d->bus_id), "%04x:%02x:%02x.%01x", (unsigned)at->domain, at->bus,
		        at->dev, at->func);
		name_device(d, pci);
		d->node = topology_node_of(h, hwloc_get_non_io_ancestor_obj(h, pci));
		count++;
	}
	hwloc_topology_destroy(h);
	return count;
}
