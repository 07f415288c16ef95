// From NV12 or P016 surfaces to normalised model inputs in one pass: antialiased resize, crop, rotation, colour, normalisation, layout.
//
// A block makes TILE rows of one frame's input. It first resizes vertically, four columns a thread, into shared memory; then
// horizontally, one column a thread, where luma and chroma meet. Compiled with -D SAMPLE, VECTOR (four of them), OUTPUT_IS_HALF.
//
// One launch takes up to FRAMES frames of one kind: a frame alone leaves most of the GPU idle, waiting for memory.

#define TILE 4
#define FRAMES 32

#if OUTPUT_IS_HALF
typedef unsigned short Output;
__device__ inline Output to_output(float value)
{
    Output half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    return half;
}
#else
typedef float Output;
__device__ inline Output to_output(float value) { return value; }
#endif

// Vertical weights. Rows [tile * TILE, tile * TILE + TILE) of the output depend on source rows first[tile] + [0, span), with weights
// [tile][source row][output row]; unused ones are zero.
struct Rows {
    const int *first;
    const float4 *weights;
    int span;
    int count;
};

// Horizontal weights. Output column x depends on source columns first[x] + [0, taps), with weights [tap][column].
struct Columns {
    const int *first;
    const float *weights;
    int taps;
    int count;
};

// Samples [left, right) of a row of the plane are what the output depends on; both count single samples, left is a multiple of 4.
struct Plane {
    Rows rows;
    Columns columns;
    int left;
    int right;
};

struct Plan {
    Plane luma;
    Plane chroma;
    float color[9];
    float offset[3];
    float gain[3];
    float black[3];
};

struct Surface {
    const SAMPLE *luma;
    const SAMPLE *chroma;
    Output *out;
    int pitch;  // samples from row to row, in both planes
    int unused;
};

struct Surfaces {
    Surface frames[FRAMES];
};

// Source rows whose loads are under way together: their latency is what a block waits for.
#define AHEAD 8

__device__ inline void load(float value[4], const SAMPLE *at, int valid, bool aligned)
{
    if (aligned) {
        VECTOR four = *(const VECTOR *)at;
        value[0] = four.x, value[1] = four.y, value[2] = four.z, value[3] = four.w;
    } else {
        for (int i = 0; i < 4; ++i) value[i] = i < valid ? at[i] : 0;
    }
}

__device__ inline void add(float4 sum[TILE], float4 weights, const float value[4])
{
    float weight[TILE] = {weights.x, weights.y, weights.z, weights.w};
#pragma unroll
    for (int r = 0; r < TILE; ++r) {
        sum[r].x += weight[r] * value[0];
        sum[r].y += weight[r] * value[1];
        sum[r].z += weight[r] * value[2];
        sum[r].w += weight[r] * value[3];
    }
}

// One tile of `plane`, resized vertically, into tall[TILE][width]; width is right - left, rounded up to a multiple of 4.
__device__ void resize_rows(const SAMPLE *samples, int pitch, const Plane &plane, int tile, float *tall, int width)
{
    const Rows &rows = plane.rows;
    const float4 *weights = rows.weights + tile * rows.span;
    const SAMPLE *begin = samples + (long long)rows.first[tile] * pitch + plane.left;
    bool aligned = pitch % 4 == 0 && (unsigned long long)begin % sizeof(VECTOR) == 0;
    for (int x = threadIdx.x * 4; x < width; x += blockDim.x * 4) {
        float4 sum[TILE] = {};
        const SAMPLE *at = begin + x;
        int valid = plane.right - plane.left - x, s = 0;
        for (; s + AHEAD <= rows.span; s += AHEAD) {
            float value[AHEAD][4];
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) load(value[i], at + (long long)(s + i) * pitch, valid, aligned);
#pragma unroll
            for (int i = 0; i < AHEAD; ++i) add(sum, weights[s + i], value[i]);
        }
        for (; s < rows.span; ++s) {
            float value[4];
            load(value, at + (long long)s * pitch, valid, aligned);
            add(sum, weights[s], value);
        }
#pragma unroll
        for (int r = 0; r < TILE; ++r) *(float4 *)(tall + r * width + x) = sum[r];
    }
}

extern "C" __global__ void preprocess(Surfaces surfaces, const Plan *plan, int row_stride, int column_stride, int channel_stride)
{
    extern __shared__ float4 shared[];
    const Surface &frame = surfaces.frames[blockIdx.y];
    const Plane &luma = plan->luma, &chroma = plan->chroma;
    int tile = blockIdx.x;
    int luma_width = (luma.right - luma.left + 3) & ~3, chroma_width = (chroma.right - chroma.left + 3) & ~3;
    float *tall_luma = (float *)shared, *tall_chroma = tall_luma + TILE * luma_width;
    resize_rows(frame.luma, frame.pitch, luma, tile, tall_luma, luma_width);
    resize_rows(frame.chroma, frame.pitch, chroma, tile, tall_chroma, chroma_width);
    __syncthreads();
    int count = luma.columns.count, rows = min(TILE, luma.rows.count - tile * TILE);
    for (int x = threadIdx.x; x < count; x += blockDim.x) {
        float y[TILE] = {}, u[TILE] = {}, v[TILE] = {};
        const float *at = tall_luma + luma.columns.first[x] - luma.left;
        for (int k = 0; k < luma.columns.taps; ++k) {
            float weight = luma.columns.weights[k * count + x];
#pragma unroll
            for (int r = 0; r < TILE; ++r) y[r] += weight * at[r * luma_width + k];
        }
        at = tall_chroma + 2 * chroma.columns.first[x] - chroma.left;
        for (int k = 0; k < chroma.columns.taps; ++k) {
            float weight = chroma.columns.weights[k * count + x];
#pragma unroll
            for (int r = 0; r < TILE; ++r) {
                u[r] += weight * at[r * chroma_width + 2 * k];
                v[r] += weight * at[r * chroma_width + 2 * k + 1];
            }
        }
        Output *pixel = frame.out + (long long)(tile * TILE) * row_stride + (long long)x * column_stride;
#pragma unroll
        for (int r = 0; r < TILE; ++r) {
            if (r >= rows) break;
#pragma unroll
            for (int c = 0; c < 3; ++c) {
                const float *mix = plan->color + 3 * c;
                float level = mix[0] * y[r] + mix[1] * u[r] + mix[2] * v[r] + plan->offset[c];
                level = rintf(fminf(fmaxf(level, 0.f), 255.f));
                pixel[(long long)r * row_stride + c * channel_stride] = to_output(level * plan->gain[c] + plan->black[c]);
            }
        }
    }
}
