/* Labels of tokens: the id that is to be predicted, or this. */
#ifndef FERRY_DATA_LABEL_H
#define FERRY_DATA_LABEL_H

enum { DATASET_IGNORE = -100 };

#endif
